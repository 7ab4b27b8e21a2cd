"""What a job is made of, each with its check: ids, names, times, arguments, JSON, fingerprints of errors. Pure."""
