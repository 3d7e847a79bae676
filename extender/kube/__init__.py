"""The Kubernetes API: client, watch cache, patches, events."""
