// The real module files are MINOR.mod, one for each version of Kubernetes: `go build -modfile`.
module swiftlet/hack/kubernetes

go 1.24.0
