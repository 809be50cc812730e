"""Deciding on messages: pure folds over messages and facts, one module for each kind.

Each message sees the facts as the messages before it left them. A decision names the limits that it was counted for. It
is made once as if all of them allowed it, and once more if one does not.
"""
