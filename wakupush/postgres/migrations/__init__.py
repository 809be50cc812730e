"""Numbered SQL files: ``NNNN_pre_what.sql`` before new code is rolled out, ``NNNN_post_what.sql`` after."""
