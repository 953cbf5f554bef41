"""The drivers behind the ``Store`` seam, one file per kind of store, and the one place where URLs become stores."""
