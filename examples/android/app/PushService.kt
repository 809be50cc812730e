// What Firebase calls. Not compiled here: it needs the Android SDK and com.google.firebase:firebase-messaging. The
// manifest of the app declares the service, for the action com.google.firebase.MESSAGING_EVENT.
package wakupush.app

import com.google.firebase.messaging.FirebaseMessagingService
import com.google.firebase.messaging.RemoteMessage

/** What the messenger's Application does. */
interface Messenger {
    /** Keep the token, and register it with each server under a higher version, again and again until an answer. */
    fun register(deviceToken: String)
    /** Open and show a message, but only once. Both are null in a notification that had no room for them. */
    fun show(chatId: ByteArray?, content: ByteArray?)
}

class PushService : FirebaseMessagingService() {
    override fun onNewToken(token: String) = (application as Messenger).register(token)

    override fun onMessageReceived(message: RemoteMessage) {
        // "What a tap receives" in docs/reference/app.md: names of the profile `spec`, and of `status`.
        fun data(vararg names: String) = names.firstNotNullOfOrNull { message.data[it] }
            ?.removePrefix("0x")?.ifEmpty { null }?.hexToByteArray()
        (application as Messenger).show(data("chat_id", "chatId"), data("message", "encryptedMessage"))
    }
}
