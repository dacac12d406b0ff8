"""What the screen shows of a running training: a dashboard, lines, or the output of a notebook.

`status` is what they show, `views` has the protocol and the simple views, `screen` the content of the dashboard. Read
`status` and `views` first.
"""
