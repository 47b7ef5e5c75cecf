//go:build kube_1_34

package main

import (
	"context"

	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Since Kubernetes 1.34 the kubelet wants to be told what ends it; its signals do so already.
func kubeletCommand() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
