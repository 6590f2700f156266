"""The protocol as values: messages, their bytes, who may say what when. No I/O in here.

``docs/protocol.md`` describes the same for people who write a publisher in another language.
"""
