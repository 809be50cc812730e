// Keys, topics and encryption of docs/reference/wire.md. No network, no clock, no state. A public key has 65 bytes,
// 04 | X | Y. BouncyCastle is not used as a security provider: Android has one of the same name.
package wakupush

import java.math.BigInteger
import java.security.SecureRandom
import java.security.spec.AlgorithmParameterSpec
import java.util.concurrent.ConcurrentHashMap
import javax.crypto.Cipher
import javax.crypto.Mac
import javax.crypto.spec.*
import org.bouncycastle.crypto.Digest
import org.bouncycastle.crypto.digests.*
import org.bouncycastle.crypto.ec.CustomNamedCurves
import org.bouncycastle.crypto.generators.PKCS5S2ParametersGenerator
import org.bouncycastle.crypto.params.*
import org.bouncycastle.crypto.signers.*
import org.bouncycastle.math.ec.ECAlgorithms
import org.bouncycastle.util.Arrays
import org.bouncycastle.util.BigIntegers

private val group = CustomNamedCurves.getByName("secp256k1").run { ECDomainParameters(curve, g, n) }
fun randomBytes(size: Int) = ByteArray(size).also(SecureRandom()::nextBytes)
private operator fun ByteArray.get(range: IntRange) = sliceArray(range)

/** The result of [read], or null if it fails: strangers can send any bytes. */
inline fun <T> orNull(read: () -> T): T? = try { read() } catch (_: Exception) { null }

private fun Digest.of(vararg parts: ByteArray): ByteArray {
    for (part in parts) update(part, 0, part.size)
    return ByteArray(digestSize).also { doFinal(it, 0) }
}
private fun sha256(bytes: ByteArray) = SHA256Digest().of(bytes)
/** Keccak-256, 32 bytes, and SHAKE-256, 64 bytes. */
fun keccak(vararg parts: ByteArray) = KeccakDigest(256).of(*parts)
fun hash64(bytes: ByteArray) = SHAKEDigest(256).of(bytes)

private fun point(publicKey: ByteArray) = group.curve.decodePoint(publicKey)
/** The 33 bytes of a public key; fails if it is not on the curve, as [parseKey] does with the text `0x04…`. */
fun compressed(publicKey: ByteArray): ByteArray = point(publicKey).getEncoded(true)
fun parseKey(text: String): ByteArray = point(text.removePrefix("0x").hexToByteArray()).getEncoded(false)

/** The names of users, authors and chats in messages: 64 bytes. */
fun keyHash(user: ByteArray) = hash64(compressed(user))
fun author(user: ByteArray) = hash64("0x${user.toHexString()}".toByteArray())
fun chatId(chat: String) = hash64(chat.toByteArray())

/** A secp256k1 key pair, by its private key of 32 bytes. */
class KeyPair(val privateKey: ByteArray) {
    private val scalar = group.validatePrivateScalar(BigInteger(1, privateKey))
    val publicKey: ByteArray = group.g.multiply(scalar).getEncoded(false)

    /** The shared key of two users: 32 bytes. */
    fun shared(other: ByteArray): ByteArray = point(other).multiply(scalar).normalize().affineXCoord.encoded

    /** A signature over 32 bytes: r | s | v, 65 bytes, deterministic (RFC 6979), with a low s. */
    fun sign(digest: ByteArray): ByteArray {
        val signer = ECDSASigner(HMacDSAKCalculator(SHA256Digest()))
        signer.init(true, ECPrivateKeyParameters(scalar, group))
        val (r, s) = signer.generateSignature(digest)
        val both = BigIntegers.asUnsignedByteArray(32, r) + BigIntegers.asUnsignedByteArray(32, s.min(group.n - s))
        return (0..1).map { both + it.toByte() }.first { publicKey.contentEquals(recover(digest, it)) }
    }

    /** The permission for a server to notify this user, 65 bytes: "Server Grant" in the specification. */
    fun grant(server: ByteArray, accessToken: String) = sign(granted(publicKey, server, accessToken))
}
fun newKey() = KeyPair(generateSequence { randomBytes(32) }.first { orNull { KeyPair(it) } != null })

/** The public key that signed 32 bytes; fails if this is no signature. */
fun recover(digest: ByteArray, signature: ByteArray): ByteArray {
    require(signature.size == 65 && signature[64] in 0..1) { "not r | s | v" }
    val s = group.validatePrivateScalar(BigInteger(1, signature[32..63]))
    val inverse = group.validatePrivateScalar(BigInteger(1, signature[0..31])).modInverse(group.n)
    val nonce = point(byteArrayOf((2 + signature[64]).toByte()) + signature[0..31])
    val factor = (-BigInteger(1, digest) * inverse).mod(group.n)
    val signer = ECAlgorithms.sumOfTwoMultiplies(group.g, factor, nonce, (s * inverse).mod(group.n))
    return group.validatePublicPoint(signer).getEncoded(false)
}

private fun granted(user: ByteArray, server: ByteArray, accessToken: String) =
    keccak(compressed(user), compressed(server), accessToken.toByteArray())
fun isGranted(grant: ByteArray, user: ByteArray, server: ByteArray, accessToken: String) =
    orNull { recover(granted(user, server, accessToken), grant) }.contentEquals(user)

fun pubsubTopic(shard: Int = 32, cluster: Int = 16) = "/waku/2/rs/$cluster/$shard"
fun contentTopic(name: String) = "/waku/1/0x${keccak(name.toByteArray())[0..3].toHexString()}/rfc26"
fun partition(publicKey: ByteArray) = BigInteger(1, publicKey[1..32]).mod(BigInteger.valueOf(5000)).toInt()
fun partitionedTopic(publicKey: ByteArray) = "contact-discovery-${partition(publicKey)}"
fun queryTopic(user: ByteArray) = keyHash(user).toHexString()

private val topicKeys = ConcurrentHashMap<String, ByteArray>()
/** The key of a symmetric topic, 32 bytes. It takes long, and the PBKDF2 of javax.crypto refuses an empty salt. */
fun topicKey(name: String) = topicKeys.getOrPut(name) {
    val generator = PKCS5S2ParametersGenerator(SHA256Digest()).apply { init(name.toByteArray(), ByteArray(0), 65_356) }
    (generator.generateDerivedParameters(256) as KeyParameter).key
}

private fun aes(mode: Int, name: String, key: ByteArray, parameters: AlgorithmParameterSpec) =
    Cipher.getInstance("AES/$name/NoPadding").apply { init(mode, SecretKeySpec(key, "AES"), parameters) }

/** Seal under a shared key: nonce (12) | AES-256-GCM. To open gives null if the key is another, here and below. */
fun seal(key: ByteArray, data: ByteArray, nonce: ByteArray = randomBytes(12)) =
    nonce + aes(Cipher.ENCRYPT_MODE, "GCM", key, GCMParameterSpec(128, nonce)).doFinal(data)
fun unseal(key: ByteArray, sealed: ByteArray) = orNull {
    aes(Cipher.DECRYPT_MODE, "GCM", key, GCMParameterSpec(128, sealed[0..11])).doFinal(sealed, 12, sealed.size - 12)
}

/** Encrypt with a topic's key: AES-256-GCM | nonce (12). */
fun encryptOn(key: ByteArray, data: ByteArray, sender: KeyPair) =
    seal(key, frame(data, sender)).let { it[12..<it.size] + it[0..11] }
fun decryptOn(key: ByteArray, payload: ByteArray) =
    orNull { payload.size.minus(12).let { unframe(unseal(key, payload[it..<it + 12] + payload[0..<it])!!) } }

/** Encrypt to a key by ECIES: ephemeral public key (65) | IV (16) | AES-128-CTR | HMAC-SHA-256 (32). */
fun encryptTo(recipient: ByteArray, data: ByteArray, sender: KeyPair): ByteArray {
    val (ephemeral, iv) = newKey() to randomBytes(16)
    val (cipher, mac) = ecies(Cipher.ENCRYPT_MODE, ephemeral.shared(recipient), iv)
    val body = iv + cipher.doFinal(frame(data, sender))
    return ephemeral.publicKey + body + mac.doFinal(body)
}
fun decryptWith(key: KeyPair, payload: ByteArray) = orNull {
    val (body, tag) = payload.size.minus(32).let { payload[65..<it] to payload[it..<it + 32] }
    val (cipher, mac) = ecies(Cipher.DECRYPT_MODE, key.shared(payload[0..64]), body[0..15])
    require(Arrays.constantTimeAreEqual(mac.doFinal(body), tag)) { "changed on the way, or for another key" }
    unframe(cipher.doFinal(body, 16, body.size - 16))
}
private fun ecies(mode: Int, shared: ByteArray, iv: ByteArray): Pair<Cipher, Mac> {
    val derived = sha256(byteArrayOf(0, 0, 0, 1) + shared)
    val mac = Mac.getInstance("HmacSHA256").apply { init(SecretKeySpec(sha256(derived[16..31]), "HmacSHA256")) }
    return aes(mode, "CTR", derived[0..15], IvParameterSpec(iv)) to mac
}

/** flags | size of the data, little endian | data | padding | signature (65): a multiple of 256 bytes. */
private fun frame(data: ByteArray, sender: KeyPair): ByteArray {
    val width = if (data.size < 1 shl 8) 1 else if (data.size < 1 shl 16) 2 else 3
    val head = byteArrayOf((width or 4).toByte()) + ByteArray(width) { (data.size shr 8 * it).toByte() } + data
    val unsigned = head + randomBytes(256 - (head.size + 65) % 256)
    return unsigned + sender.sign(keccak(unsigned))
}
/** The data of a frame. Its signer does not matter: a client looks at who signed the data. */
private fun unframe(frame: ByteArray): ByteArray {
    val (start, isSigned) = 1 + (frame[0].toInt() and 3) to (frame[0].toInt() and 4 != 0)
    val (size, end) = BigInteger(1, frame[1..<start].reversedArray()).toInt() to frame.size - if (isSigned) 65 else 0
    require(start + size <= end) { "data longer than the frame" }
    if (isSigned) recover(keccak(frame[0..<end]), frame[end..<frame.size])
    return frame[start..<start + size]
}
