"""The values that all modules share: what is stored, what is sent, and the closed tables that decide about both.

Nothing here uses a clock, a socket or a setting, or imports another package of wakupush than the generated
`wakupush.pb`.
"""
