"""HTTP: connections, ids, limits, errors in the right envelope, event streams, shutdown; it mounts the protocols."""
