import static org.junit.Assert.assertTrue;

import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hdfs.server.namenode.NNThroughputBenchmark;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.SimpleLayout;
import org.apache.log4j.WriterAppender;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TestRule;
import org.junit.rules.Timeout;

/** Hadoop's NNThroughputBenchmark: that it runs to its end, not how fast. */
public class Throughput {
  private static final int MANY = 300;

  /** A thread of the benchmark that fails only logs it, and the others wait for it for ever. */
  @Rule public final TestRule limit = new Timeout(5, TimeUnit.MINUTES);

  private final Logger log = Logger.getLogger(NNThroughputBenchmark.class);
  private final StringWriter said = new StringWriter();
  private final WriterAppender listener = new WriterAppender(new SimpleLayout(), said);

  @Before public void listen() {
    log.setLevel(Level.INFO);
    log.setAdditivity(false);
    log.addAppender(listener);
  }

  @After public void ignore() {
    log.removeAppender(listener);
  }

  private void run(String operation, String what, String... more) throws Exception {
    List<String> args = new ArrayList<>(List.of("-op", operation, "-threads", "8", "-" + what, "" + MANY, "-" + what + "PerDir", "50"));
    args.addAll(List.of(more));
    NNThroughputBenchmark.runBenchmark(Suites.settings(), args.toArray(new String[0]));
    assertTrue(said.toString(), said.toString().contains("# operations: " + MANY + "\n"));
  }

  @Test public void create() throws Exception {
    run("create", "files", "-close");
  }

  @Test public void mkdirs() throws Exception {
    run("mkdirs", "dirs");
  }

  @Test public void open() throws Exception {
    run("open", "files");
  }

  @Test public void fileStatus() throws Exception {
    run("fileStatus", "files");
  }

  @Test public void rename() throws Exception {
    run("rename", "files");
  }

  @Test public void delete() throws Exception {
    run("delete", "files");
  }
}
