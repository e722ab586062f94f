"""The nouns: workers, requests, load, reasons, events and commands. Values only; imports nothing of the project."""
