"""The values that everybody speaks: what is stored, what is sent, and the closed tables that decide about it.

Nothing here looks at a clock, a socket, a setting or another module of ours but the generated `wakupush.pb`.
"""
