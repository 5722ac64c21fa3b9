import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.hdfs.security.token.delegation.DelegationTokenIdentifier;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.token.Token;

/**
 * Tokens URI get FILE: gets a delegation token, renews it, and writes it to a file as hdfs fetchdt does.
 * Tokens URI cancel FILE: cancels the tokens in the file.
 */
public final class Tokens {
  @SuppressWarnings("unchecked")
  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    DistributedFileSystem fs = (DistributedFileSystem) new Path(args[0]).getFileSystem(conf);
    ClientProtocol namenode = fs.getClient().getNamenode(); // Token.renew needs more jars
    Path file = new Path(new File(args[2]).toURI());
    if (args[1].equals("get")) {
      Credentials all = new Credentials();
      Token<?>[] got = fs.addDelegationTokens("ann", all);
      if (got.length != 1) {
        throw new IllegalStateException(got.length + " tokens");
      }
      if (namenode.renewDelegationToken((Token<DelegationTokenIdentifier>) got[0]) <= System.currentTimeMillis()) {
        throw new IllegalStateException("the token has expired");
      }
      all.writeTokenStorageFile(file, conf);
      return;
    }
    for (Token<?> t : Credentials.readTokenStorageFile(file, conf).getAllTokens()) {
      namenode.cancelDelegationToken((Token<DelegationTokenIdentifier>) t);
    }
  }
}
