"""The worker: claims jobs, runs them, keeps their leases, settles them."""
