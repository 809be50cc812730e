package wakupush

import java.io.File
import kotlin.io.encoding.Base64
import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFalse
import kotlin.test.assertNotNull
import kotlin.test.assertNull
import org.json.JSONArray
import org.json.JSONObject
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.TestFactory

private fun file(name: String) = JSONObject(File(System.getProperty("vectors"), "$name.json").readText())
private fun JSONObject.all(name: String) = getJSONArray(name).run { List(length()) { getJSONObject(it) } }
private fun JSONArray.bytes() = List(length()) { getString(it).hexToByteArray() }
private fun JSONObject.bytes(name: String) = getString(name).hexToByteArray()
private fun JSONObject.payload() = Base64.decode(getJSONObject("waku_message").getString("payload"))
private fun JSONObject.key(name: String) = KeyPair(bytes(name))

/** Holds the protocol to the vectors of status-go in tests/vectors: one test for each. */
class VectorsTest {
    private fun each(vectors: List<JSONObject>, check: (JSONObject) -> Unit) =
        vectors.map { vector -> DynamicTest.dynamicTest(vector.optString("note").ifEmpty { "-" }) { check(vector) } }

    @TestFactory
    fun keys() = each(file("keys").all("keys")) {
        val publicKey = it.key("private_key").publicKey
        assertEquals(it.getString("public_key"), publicKey.toHexString())
        assertContentEquals(publicKey, parseKey("0x" + it.getString("public_key")))
        assertEquals(it.getString("compressed_public_key"), compressed(publicKey).toHexString())
        assertEquals(it.getString("public_key_hash"), keyHash(publicKey).toHexString())
        assertEquals(it.getString("author_hash"), author(publicKey).toHexString())
        assertEquals(it.getInt("partition"), partition(publicKey))
    }

    @TestFactory
    fun topics() = each(file("topics").all("topics").flatMap { key ->
        key.all("topics").onEach { it.put("public_key", key.getString("public_key")) }
    }) {
        val (user, name) = it.bytes("public_key") to it.getString("name")
        if (it.getString("kind") == "partitioned") assertEquals(name, partitionedTopic(user))
        if (it.getString("kind") == "query") assertEquals(name, queryTopic(user))
        assertEquals(it.getString("content_topic"), contentTopic(name))
        it.getString("symmetric_key").ifEmpty { null }?.let { key -> assertEquals(key, topicKey(name).toHexString()) }
    }

    @TestFactory
    fun hashes() = each(file("hashes").all("hashes")) {
        assertEquals(it.getString("shake256_64"), hash64(it.bytes("input")).toHexString())
        assertEquals(it.getString("keccak256"), keccak(it.bytes("input")).toHexString())
    }

    @TestFactory
    fun sharedKeys() = each(file("ecdh").all("pairs")) {
        assertEquals(it.getString("shared_key"), it.key("private_key_a").shared(it.bytes("public_key_b")).toHexString())
        assertEquals(it.getString("shared_key"), it.key("private_key_b").shared(it.bytes("public_key_a")).toHexString())
    }

    @TestFactory
    fun seals() = each(file("aes_gcm").all("cases")) {
        val opened = unseal(it.bytes("key"), it.bytes("ciphertext"))
        if (!it.getBoolean("opens")) return@each assertNull(opened)
        assertEquals(it.getString("plaintext"), assertNotNull(opened).toHexString())
        val sealed = seal(it.bytes("key"), it.bytes("plaintext"), it.bytes("nonce"))
        assertEquals(it.getString("ciphertext"), sealed.toHexString())
    }

    @TestFactory
    fun grants() = each(file("grants").all("grants")) {
        val (client, server) = it.bytes("client_public_key") to it.bytes("server_public_key")
        assertEquals(it.getBoolean("valid"), isGranted(it.bytes("grant"), client, server, it.getString("access_token")))
        if (it.optString("note") != "good") return@each
        val grant = it.key("client_private_key").grant(server, it.getString("access_token"))
        assertEquals(it.getString("grant"), grant.toHexString())
    }

    @TestFactory
    fun accessTokens() = each(file("access_tokens").all("items")) {
        val user = it.bytes("user_public_key")
        fun open(key: KeyPair) = unseal(key.shared(user), it.bytes("item"))?.decodeToString()
        for (name in listOf("contact", "stranger"))
            when (val token = open(it.key("${name}_private_key"))) {
                null -> assertFalse(it.getBoolean("${name}_opens"))
                else -> assertEquals(it.getString("access_token"), token)
            }
    }

    /** The one without a signature is missing: clients drop it. */
    @TestFactory
    fun metadata() = each(file("metadata").all("messages").filter { it.getString("note") != "no signature" }) {
        val opened = unwrap(it.bytes("metadata"))
        if (!it.getBoolean("parses")) return@each assertNull(opened)
        assertEquals(it.getLong("type"), assertNotNull(opened).type)
        assertEquals(it.getString("inner"), opened.inner.toHexString())
        assertEquals(it.getString("signer_public_key"), opened.signer.toHexString())
        assertEquals(it.getString("message_id"), opened.messageId.toHexString())
        val written = wrap(opened.type, opened.inner, it.key("private_key"))
        if (it.getString("note") != "unknown extra field") assertEquals(it.getString("metadata"), written.toHexString())
    }

    /** The version of a WakuMessage is the node's to read. */
    @TestFactory
    fun payloads() = each(file("payload_v1").all("messages").filter { it.getString("note") != "version 2" }) {
        val layer = it.getJSONObject("payload_v1")
        val isTopic = layer.getString("encryption") == "symmetric"
        fun open(payload: ByteArray) =
            if (isTopic) decryptOn(layer.bytes("symmetric_key"), payload)
            else decryptWith(layer.key("recipient_private_key"), payload)
        val data = open(it.payload())
        if (!it.getBoolean("opens")) return@each assertNull(data)
        assertEquals(layer.optString("data"), assertNotNull(data).toHexString())
        val sender = newKey()
        val written =
            if (isTopic) encryptOn(layer.bytes("symmetric_key"), data, sender)
            else encryptTo(layer.bytes("recipient_public_key"), data, sender)
        assertContentEquals(data, open(written))
        assertEquals(0, (written.size - if (isTopic) 28 else 113) % 256)
        for (size in listOf(0, 11, 12, 64, 97, written.size - 1)) assertNull(open(written.copyOf(size)))
        assertNull(open(written.also { changed -> changed[written.size / 2]++ }))
    }

    @TestFactory
    fun conversations() = listOf("client_flow", "registrations", "queries", "requests").flatMap { name ->
        val scenario = file("scenario_$name")
        val pairs = scenario.all("keys").flatMap { listOf(it) + it.all("ephemeral_keys") }.map { it.key("private_key") }
        val keys = pairs.associateBy { it.publicKey.toHexString() }
        val server = scenario.all("keys").first { it.getString("name") == "server" }.key("private_key")
        each(scenario.all("steps").flatMap { step ->
            val replies = step.all("replies").filter { it.has("application") }
            step.all("send").filter { it.has("application") }.onEach { sent ->
                sent.put("note", "$name: ${step.getString("name")}").put("replies", replies)
            }
        }.filter { it.getJSONObject("application").has("type") }) { sent ->
            val application = sent.getJSONObject("application")
            Conversation(keys, server, keys.getValue(application.getString("signer_public_key")), sent).check()
        }
    }
}

/** What has no vector: garbage gives null, and nothing else. */
class GarbageTest {
    @Test
    fun `a token sealed for another is not opened`() {
        val (user, contact, stranger) = List(3) { newKey() }
        val item = allow(user, contact.publicKey, "token")
        assertEquals("token", unseal(contact.shared(user.publicKey), item)?.decodeToString())
        assertNull(unseal(stranger.shared(user.publicKey), item))
        for (size in item.indices) assertNull(unseal(contact.shared(user.publicKey), item.copyOf(size)))
    }

    @Test
    fun `an answer to another key, cut, or of another server is none`() {
        val (user, server, stranger) = List(3) { newKey() }
        val nonce = randomBytes(12)
        val plain = unregistration("installation", 1)
        val (question, another) = listOf(user, stranger).map { register(it, server.publicKey, plain, nonce) }
        val id = hash64(seal(user.shared(server.publicKey), plain, nonce))
        fun answer(from: KeyPair, to: KeyPair = user, inner: ByteArray = message(1 to true, 3 to id), type: Long = 17) =
            encryptTo(to.publicKey, wrap(type, inner, from), from)
        assertEquals(Outcome.SUCCESS, question.answer(answer(server)))
        assertNull(another.answer(answer(server)))
        assertNull(question.answer(answer(server, stranger)))
        assertNull(question.answer(answer(stranger)))
        assertNull(question.answer(answer(server, type = 19)))
        assertNull(question.answer(answer(server, inner = message(1 to true, 3 to randomBytes(64)))))
        assertNull(question.answer(answer(server, inner = byteArrayOf(10, -1, -1, -1, -1, 15))))
        val whole = answer(server)
        for (size in whole.indices) assertNull(question.answer(whole.copyOf(size)))
    }

    @Test
    fun `numbers of all sizes come back`() {
        for (number in listOf(1L, 127, 128, 16_383, 16_384, Long.MAX_VALUE, Long.MIN_VALUE, -1))
            assertEquals(number, Fields(message(9 to number)).number(9))
        for (bytes in listOf("08", "0d00000000", "12", "1202ff", "08ffffffffffffffffffff", "12ffffffffffffffffff01"))
            assertNull(orNull { Fields(bytes.hexToByteArray()).number(1) }, bytes)
    }
}

/** One message of a client and its answers: we write the same bytes, and read what the answers say. */
private class Conversation(val keys: Map<String, KeyPair>, val server: KeyPair, val sender: KeyPair, sent: JSONObject) {
    val application: JSONObject = sent.getJSONObject("application")
    val fields: JSONObject? = application.optJSONObject("fields")
    val replies = sent.all("replies")

    fun check() {
        when (application.getInt("type")) {
            16 -> application.optJSONObject("registration")?.takeIf { it.has("plaintext") }?.let(::registers)
            18 -> if (fields?.getJSONArray("public_keys")?.length() == 1) asks(fields)
            20 -> if (fields?.getJSONArray("requests")?.isEmpty == false) pushes(fields)
        }
    }

    /** The answers to this question, of which [id] is a field, as both our code and the vector read them. */
    private fun <T> answers(question: Question<T>, id: Pair<String, ByteArray>): List<Pair<JSONObject, T?>> {
        return replies.map { it to it.getJSONObject("application") }.filter { (reply, application) ->
            reply.getJSONObject("payload_v1").bytes("recipient_public_key").contentEquals(question.key.publicKey) &&
                application.getJSONObject("fields").optString(id.first) == id.second.toHexString()
        }.map { (reply, application) -> application.getJSONObject("fields") to question.answer(reply.payload()) }
    }

    private fun outcome(answer: JSONObject) =
        if (answer.getBoolean("success")) "SUCCESS" else answer.getString("error_name")

    private fun assertSent(question: Question<*>, metadata: ByteArray?) {
        assertEquals(application.getString("metadata"), assertNotNull(metadata).toHexString())
        assertNull(question.answer(question.payload), "its own question is no answer")
    }

    private fun registers(registration: JSONObject) {
        val plain = registration.bytes("plaintext")
        val question = register(sender, server.publicKey, plain, registration.bytes("nonce"))
        assertSent(question, decryptWith(server, question.payload))
        for ((answer, outcome) in answers(question, "request_id" to registration.bytes("request_id")))
            assertEquals(outcome(answer), outcome?.name)
        // Ours is of a device on Firebase, and has a good grant.
        val fields = registration.optJSONObject("fields")?.takeIf { it.getInt("token_type") == 2 } ?: return
        val accessToken = fields.getString("access_token")
        if (!isGranted(fields.bytes("grant"), sender.publicKey, server.publicKey, accessToken)) return
        fun list(name: String) = fields.getJSONArray(name).bytes()
        val own = registration(
            sender, server.publicKey, fields.getString("device_token"), fields.getString("installation_id"),
            accessToken, fields.getBigInteger("version").toLong(), fields.getBoolean("enabled"),
            fields.getBoolean("allow_from_contacts_only"), fields.getBoolean("block_mentions"),
            list("allowed_key_list"), list("blocked_chat_list"), list("muted_chat_list"),
            list("allowed_mentions_chat_list"),
        )
        assertEquals(plain.toHexString(), own.toHexString())
    }

    private fun asks(fields: JSONObject) {
        val hash = fields.getJSONArray("public_keys").getString(0)
        val user = keys.values.firstOrNull { keyHash(it.publicKey).toHexString() == hash } ?: return
        for (reader in keys.values) {
            val question = query(user.publicKey, reader, sender)
            assertSent(question, decryptOn(topicKey(queryTopic(user.publicKey)), question.payload))
            for ((answer, devices) in answers(question, "message_id" to application.bytes("message_id"))) {
                val expected = answer.all("info").filter { info ->
                    info.getString("access_token") != "" || info.getJSONArray("allowed_key_list").bytes().any {
                        unseal(reader.shared(user.publicKey), it) != null
                    }
                }
                val found = devices.orEmpty()
                assertEquals(expected.map { it.getString("installation_id") }, found.map { it.installationId })
                for ((info, device) in expected.zip(found))
                    assertEquals(info.getString("access_token").ifEmpty { device.accessToken }, device.accessToken)
            }
        }
    }

    private fun pushes(fields: JSONObject) {
        val items = fields.all("requests")
        val devices = items.map { item ->
            val hash = item.getString("public_key")
            val user = keys.values.find { keyHash(it.publicKey).toHexString() == hash } ?: return
            Device(user.publicKey, server.publicKey, item.getString("installation_id"), item.getString("access_token"))
        }
        val (first, id) = items.first() to fields.bytes("message_id")
        val (chat, content, author) = listOf("chat_id", "message", "author").map(first::bytes)
        val same = listOf("chat_id", "message", "author", "type")
        if (items.any { item -> same.any { "${item[it]}" != "${first[it]}" } }) return
        val question = push(devices, chat, content, author, first.getLong("type"), id, sender)
        assertSent(question, decryptWith(server, question.payload))
        for ((answer, outcomes) in answers(question, "message_id" to id)) {
            val expected = answer.all("reports").associate {
                it.getString("installation_id") to outcome(it)
            }
            assertEquals(expected, outcomes?.mapValues { it.value.name })
        }
    }
}
