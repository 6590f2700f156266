"""What this machine can do and why not, tried rather than guessed: ``cuframes-nb doctor``."""
