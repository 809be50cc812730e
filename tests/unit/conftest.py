from hypothesis import settings

# No database: the same tests leave nothing behind and read nothing that an earlier run left.
settings.register_profile("wakupush", max_examples=300, deadline=None, database=None)
settings.load_profile("wakupush")
