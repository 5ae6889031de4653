"""Where a group can run: systemd, containers, Kubernetes, and HAProxy in front of several groups."""
