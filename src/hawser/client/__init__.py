"""What stands between an app and its store: the connection, the portal for sync callers, transactions, operator calls."""
