"""How good an answer is: the papers' clustering protocol and scores."""
