"""Load and measurement, as part of the product: anybody can repeat our figures on a store of their own."""
