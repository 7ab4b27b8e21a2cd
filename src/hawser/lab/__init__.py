"""Load and measurement, as part of the product: a user can repeat the figures on a store of their own."""
