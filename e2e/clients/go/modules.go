//go:build tools

// Package clients names the modules, so that go.sum knows them.
package clients

import (
	_ "github.com/gophercloud/gophercloud/v2"
	_ "github.com/ncw/swift/v2"
)
