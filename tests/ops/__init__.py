"""The files beside the product: alert rules, dashboard, image, compose, the operations docs."""
