// The versions of Go modules whose own tests `make clients` runs against a store.
module swiftlet.invalid/clients

go 1.25.0

require (
	github.com/gophercloud/gophercloud/v2 v2.15.0
	github.com/ncw/swift/v2 v2.0.5
)
