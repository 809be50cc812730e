"""The push notification server for messengers on Waku (71/STATUS-PUSH-NOTIFICATION-SERVER)."""

__version__ = "0.1.0"
