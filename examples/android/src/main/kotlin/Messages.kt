// The messages of docs/reference/wire.md that a client writes and reads. Protobuf is by hand, because they are few.
package wakupush

import java.io.ByteArrayOutputStream
import java.nio.ByteBuffer
import wakupush.Outcome.*

/** A protobuf message of Long, Boolean, String, ByteArray and lists of ByteArray by field. Defaults are left out. */
fun message(vararg fields: Pair<Int, Any>): ByteArray = ByteArrayOutputStream().run {
    fun varint(value: Long) {
        if (value ushr 7 == 0L) return write(value.toInt())
        write(value.toInt() or 128)
        varint(value ushr 7)
    }
    fun bytes(field: Int, value: ByteArray) {
        longArrayOf(field * 8L + 2, value.size.toLong()).forEach(::varint)
        write(value, 0, value.size)
    }
    for ((field, value) in fields) when (value) {
        0L, false, "" -> {}
        is Long -> longArrayOf(field * 8L, value).forEach(::varint)
        is Boolean -> longArrayOf(field * 8L, 1).forEach(::varint)
        is String -> bytes(field, value.toByteArray())
        is ByteArray -> if (value.isNotEmpty()) bytes(field, value)
        is List<*> -> for (item in value) bytes(field, item as ByteArray)
    }
    toByteArray()
}

/** The fields of a protobuf message: numbers and bytes, as these messages have no others. Fails at anything else. */
class Fields(message: ByteArray) {
    private val rest = ByteBuffer.wrap(message)
    private val tags = generateSequence { if (rest.hasRemaining()) varint() else null }
    private val values = tags.groupBy({ (it ushr 3).toInt() }) { tag ->
        val value = varint() // a number, or the size of the bytes
        require(tag and 7 == 0L || tag and 7 == 2L && value in 0..rest.remaining()) { "neither number nor bytes" }
        if (tag and 7 == 0L) value else ByteArray(value.toInt()).also(rest::get)
    }

    private fun varint(shift: Int = 0): Long {
        val byte = if (shift < 70) rest.get().toLong() else error("a number of more than 10 bytes")
        return (byte and 127 shl shift) or if (byte < 0) varint(shift + 7) else 0
    }

    fun number(field: Int) = values[field]?.last() as Long? ?: 0
    fun all(field: Int) = values[field].orEmpty().map { it as ByteArray }
    fun bytes(field: Int) = all(field).lastOrNull() ?: ByteArray(0)
    fun text(field: Int) = bytes(field).decodeToString()
}

/** An opened ApplicationMetadataMessage. Types are in wire.md; the signer's key has 65 bytes, the message id 32. */
class ApplicationMessage(val type: Long, val inner: ByteArray, val signer: ByteArray, val messageId: ByteArray)
fun wrap(type: Long, inner: ByteArray, key: KeyPair) = message(1 to key.sign(keccak(inner)), 2 to inner, 3 to type)
fun unwrap(metadata: ByteArray) = orNull {
    val (fields, signer) = Fields(metadata).let { it to recover(keccak(it.bytes(2)), it.bytes(1)) }
    ApplicationMessage(fields.number(3), fields.bytes(2), signer, keccak(signer, metadata))
}

/** A message to publish on a content topic, and how to read the answers to it, which come on [answerTopic]. */
class Question<T>(val key: KeyPair, name: String, val payload: ByteArray, val read: (ApplicationMessage) -> T?) {
    val topic = contentTopic(name)
    val answerTopic = contentTopic(partitionedTopic(key.publicKey))
    /** The answer in the payload of a WakuMessage. Null if it answers another question, or is made up. */
    fun answer(payload: ByteArray) = orNull { read(unwrap(decryptWith(key, payload)!!)!!) }
}
/** The fields of an answer that has the id of the question in a field. */
private fun ApplicationMessage.fields(type: Long, field: Int, id: ByteArray, server: ByteArray = signer) =
    Fields(inner).takeIf { this.type == type && it.bytes(field).contentEquals(id) && signer.contentEquals(server) }

enum class Outcome {
    SUCCESS, MALFORMED_MESSAGE, VERSION_MISMATCH, UNSUPPORTED_TOKEN_TYPE, INTERNAL_ERROR, WRONG_TOKEN, NOT_REGISTERED
}
private fun Fields.outcome(vararg errors: Outcome) =
    if (number(1) == 1L) SUCCESS else errors.getOrElse(number(2).toInt() - 1) { INTERNAL_ERROR }

/** An item of `allowed` below: the access token, sealed for a contact. */
fun allow(key: KeyPair, contact: ByteArray, accessToken: String) = seal(key.shared(contact), accessToken.toByteArray())
/** What a device on Firebase registers. The lists but [allowed] have chats, [blocked] also authors: 64 bytes. */
fun registration(
    key: KeyPair, server: ByteArray, deviceToken: String, installationId: String, accessToken: String, version: Long,
    enabled: Boolean = true, contactsOnly: Boolean = false, blocksMentions: Boolean = false,
    allowed: List<ByteArray> = listOf(), blocked: List<ByteArray> = listOf(), muted: List<ByteArray> = listOf(),
    mentions: List<ByteArray> = listOf(),
) = message(
    1 to 2L /* FIREBASE_TOKEN */, 2 to deviceToken, 3 to installationId, 4 to accessToken, 5 to enabled, 6 to version,
    7 to allowed, 8 to blocked, 10 to key.grant(server, accessToken), 11 to contactsOnly,
    13 to blocksMentions, 14 to mentions, 15 to muted,
)
fun unregistration(installationId: String, version: Long) = message(3 to installationId, 6 to version, 9 to true)
/** "Registering": send one of these two to a server. */
fun register(key: KeyPair, server: ByteArray, plain: ByteArray, nonce: ByteArray = randomBytes(12)): Question<Outcome> {
    val sealed = seal(key.shared(server), plain, nonce)
    return Question(key, partitionedTopic(server), encryptTo(server, wrap(16, sealed, key), key)) {
        it.fields(17, 3, hash64(sealed), server)?.outcome(MALFORMED_MESSAGE, VERSION_MISMATCH, UNSUPPORTED_TOKEN_TYPE)
    }
}

/** A device of a user, and the server that may notify it. */
class Device(val user: ByteArray, val server: ByteArray, val installationId: String, val accessToken: String)
/** "Asking": which devices a user has. [reader] opens access tokens for contacts; wrong grants are left out. */
fun query(user: ByteArray, reader: KeyPair, key: KeyPair = newKey()): Question<List<Device>> {
    val (name, metadata) = queryTopic(user) to wrap(18, message(1 to keyHash(user)), key)
    return Question(key, name, encryptOn(topicKey(name), metadata, key)) { answer ->
        val devices = answer.fields(19, 2, keccak(key.publicKey, metadata))?.all(1)?.map(::Fields)
        devices?.filter { it.bytes(3).contentEquals(keyHash(user)) }?.mapNotNull { device ->
            val opened = device.all(4).mapNotNull { unseal(reader.shared(user), it)?.decodeToString() }
            (opened + device.text(1)).find { isGranted(device.bytes(5), user, answer.signer, it) }
                ?.let { Device(user, answer.signer, device.text(2), it) }
        }?.ifEmpty { null }
    }
}

/** "Pushing" encrypted content to devices of one server, as a MESSAGE (1). The outcomes are by installation id. */
fun push(
    devices: List<Device>, chat: ByteArray, content: ByteArray, author: ByteArray, type: Long = 1,
    id: ByteArray = randomBytes(32), key: KeyPair = newKey(),
): Question<Map<String, Outcome>> {
    val (server, items) = devices.first().server to devices.map {
        val address = arrayOf(3 to keyHash(it.user), 4 to it.installationId)
        message(1 to it.accessToken, 2 to chat, *address, 5 to content, 6 to type, 7 to author)
    }
    val metadata = wrap(20, message(1 to items, 2 to id), key)
    return Question(key, partitionedTopic(server), encryptTo(server, metadata, key)) { answer ->
        val reports = answer.fields(21, 1, id, server)?.all(2)?.map(::Fields)
        reports?.associate { it.text(4) to it.outcome(WRONG_TOKEN, INTERNAL_ERROR, NOT_REGISTERED) }
    }
}
