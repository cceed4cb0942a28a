"""Importing data of others: looked at, cut into splits, written in The Well's layout, with a certificate."""
