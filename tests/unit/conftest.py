from hypothesis import settings

# No database: the same tests leave nothing behind and read nothing that an earlier run left.
settings.register_profile("wakupush", max_examples=300, deadline=None, database=None)
#: `make fuzz`.
settings.register_profile("long", parent=settings.get_profile("wakupush"), max_examples=20_000)
settings.load_profile("wakupush")
