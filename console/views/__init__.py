"""One module per screen: parse the request, call one verb, render."""
