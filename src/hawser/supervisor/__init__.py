"""The process above the workers: starts them, keeps their leases, recovers what a crash left, scales them."""
