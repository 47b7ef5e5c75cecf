// The versions of the stores in Go that are measured beside this one. Each is built by itself, with its own go.sum.
module swiftlet.invalid/peers

go 1.26.6

require (
	github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c
	github.com/seaweedfs/seaweedfs v0.0.0-20261109003541-7506e5f91cd6
)
