package wakupush

import java.net.HttpURLConnection
import java.net.URI
import java.net.URLEncoder
import java.util.UUID
import kotlin.io.encoding.Base64
import kotlin.test.Test
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import org.json.JSONArray
import org.json.JSONObject
import org.junit.jupiter.api.condition.EnabledIfSystemProperty

/** A Waku node that serves filter and light push, by its REST API; in an app, the messenger's own node does this. */
class RestNode(private val url: String, private val shard: String = pubsubTopic()) {
    private fun ask(method: String, path: String, body: JSONObject? = null): String {
        while (true) {
            val connection = URI(url + path).toURL().openConnection() as HttpURLConnection
            connection.requestMethod = method
            connection.setRequestProperty("Content-Type", "application/json")
            if (body != null) {
                connection.doOutput = true
                connection.outputStream.use { it.write("$body".toByteArray()) }
            }
            when (val status = connection.responseCode) {
                200 -> return connection.inputStream.use { it.readBytes().decodeToString() }
                429, 503 -> Thread.sleep(1000) // service nodes take about one request a second
                else -> error("$path: $status ${connection.errorStream?.use { it.readBytes().decodeToString() }}")
            }
        }
    }

    /** Publish a question, and read its topic until its answer comes; fails after ten seconds. */
    fun <T> ask(question: Question<T>): T {
        val (topics, end) = JSONArray(listOf(question.answerTopic)) to System.nanoTime() + 10_000_000_000
        val filter = mapOf("requestId" to "${UUID.randomUUID()}", "contentFilters" to topics, "pubsubTopic" to shard)
        ask("POST", "/filter/v2/subscriptions", JSONObject(filter))
        val message = mapOf(
            "payload" to Base64.encode(question.payload), "contentTopic" to question.topic, "version" to 1,
            "timestamp" to System.currentTimeMillis() * 1_000_000,
        )
        ask("POST", "/lightpush/v1/message", JSONObject(mapOf("pubsubTopic" to shard, "message" to message)))
        while (System.nanoTime() < end) {
            val topic = URLEncoder.encode(question.answerTopic, "UTF-8")
            val received = JSONArray(ask("GET", "/filter/v2/messages/$topic"))
            for (i in 0..<received.length())
                question.answer(Base64.decode(received.getJSONObject(i).getString("payload")))?.let { return it }
            Thread.sleep(100)
        }
        error("nobody answered")
    }
}

/** The whole way: -Dnode=URL -Dserver=0x04… name a node and a server, -Dtoken=… the device's token. */
@EnabledIfSystemProperty(named = "node", matches = ".+")
class ServerTest {
    private val node = RestNode(System.getProperty("node"))
    private val server = parseKey(System.getProperty("server"))
    private val token = System.getProperty("token")

    @Test
    fun `a device registers, is found, gets a push and unregisters`() {
        val (alice, bob) = newKey() to newKey()
        val (installation, accessToken) = "${UUID.randomUUID()}" to "${UUID.randomUUID()}"
        fun registration(version: Long) = registration(
            alice, server, token, installation, accessToken, version,
            allowed = listOf(allow(alice, bob.publicKey, accessToken)), contactsOnly = true,
        )
        assertEquals(Outcome.SUCCESS, node.ask(register(alice, server, registration(1))))
        assertEquals(Outcome.VERSION_MISMATCH, node.ask(register(alice, server, registration(1))))
        assertEquals(Outcome.SUCCESS, node.ask(register(alice, server, registration(2))))

        val device = node.ask(query(alice.publicKey, bob)).single()
        assertEquals(installation to accessToken, device.installationId to device.accessToken)
        assertContentEquals(server, device.server)

        fun push() = push(listOf(device), chatId("a chat"), "hello".toByteArray(), author(bob.publicKey))
        assertEquals(mapOf(installation to Outcome.SUCCESS), node.ask(push()))
        assertEquals(Outcome.SUCCESS, node.ask(register(alice, server, unregistration(installation, 3))))
        assertEquals(mapOf(installation to Outcome.NOT_REGISTERED), node.ask(push()))
    }
}
