"""What keeps a store in order. Every part is safe in any number of processes at once: there is no leader."""
