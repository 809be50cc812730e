"""The rehearsal of the chart on a real Kubernetes control plane with KEDA; its pods are plain processes."""
