"""``tonnx zoo``: models of a manifest, each exported in a process of its own, proven, timed, compared with others."""
