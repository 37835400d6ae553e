"""Networks of other libraries, exported as a user would, and judged outside of tonnx. `make test-libs`."""
