"""Who gets the request: the policies, and what they rank."""
