"""`python -m chaos.brisk_worker`: wakupush whose tasks come back sooner, for runs that have a minute and not ten.

What a killed worker had taken comes back after the visibility time-out, which has to be above the time limit of tasks.
"""

from wakupush.redis import celery_app as celery

celery.SOFT_TIME_LIMIT_SECONDS, celery.TIME_LIMIT_SECONDS, celery.VISIBILITY_TIMEOUT_SECONDS = 8, 12, 15

from wakupush.cli import main  # noqa: E402 - after the times are set

if __name__ == "__main__":
    main()
