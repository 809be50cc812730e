"""The push notification server for messengers on Waku (71/STATUS-PUSH-NOTIFICATION-SERVER)."""

__version__ = "1.0.0rc1"
