"""What a run gives its handler: steps, waits, output, a transaction that settles the job, and the hooks around it."""
