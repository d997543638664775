"""Chat templates as code: compiled and rendered in this process, or in one that can be killed.

A template is a program, and one that came with a folder is a stranger's: it may never end, or take all memory. It runs
in a process of its own, under limits that the system enforces. `python -m ninfer.sandbox` is that process; `process`
is its other end. Nothing here knows a conversation, a token or an error of a request, and nothing of ours is imported.
"""
