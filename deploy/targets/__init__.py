"""Deployment targets: systemd, containers, Kubernetes, and HAProxy in front of several groups."""
