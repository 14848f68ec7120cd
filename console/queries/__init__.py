"""What the screens read: constant numbers of queries, served by indexes. Nothing here writes."""
