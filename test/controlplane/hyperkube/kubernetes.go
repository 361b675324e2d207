package main

import (
	"context"

	"github.com/spf13/cobra"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/gshare-dev/gshare/test/controlplane/program"
)

func apiServerCommand() *cobra.Command { return apiserver.NewAPIServerCommand() }
func controllerManagerCommand() *cobra.Command {
	return controllermanager.NewControllerManagerCommand()
}
func kubeletCommand() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
func kubectlCommand() *cobra.Command { return kubectl.NewDefaultKubectlCommand() }

// schedulerCommand returns the command of kube-scheduler with gshare's plugins.
func schedulerCommand() *cobra.Command {
	return scheduler.NewSchedulerCommand(program.SchedulerOptions()...)
}
