import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonConfigurationKeys;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.apache.hadoop.fs.Options.HandleOpt;
import org.apache.hadoop.fs.contract.*;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.junit.Before;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Suites CLASS...: runs tests of Hadoop's, bound to one file system by the classes below, and ours, of classes beside this
 * one. The properties say how: contract, the resource with the settings, and uri, the server, which a suite may empty.
 * For each check it prints "check", "begun" and the name, then "check", how it ended, the name and why, parted by tabs; in
 * the end "all".
 */
public final class Suites {
  /** The settings of the contract. */
  static Configuration settings() {
    Configuration c = new HdfsConfiguration();
    c.addResource(System.getProperty("contract"));
    return c;
  }

  public static void main(String[] args) throws Exception {
    JUnitCore junit = new JUnitCore();
    junit.addListener(new Report());
    for (String arg : args) {
      Class<?> suite;
      try {
        suite = Class.forName("Suites$" + arg);
      } catch (ClassNotFoundException e) {
        suite = Class.forName(arg);
      }
      junit.run(suite);
      FileSystem.closeAll(); // the next one has other settings
    }
    System.out.println("all");
    System.out.flush();
    Runtime.getRuntime().halt(0); // clients leave threads behind
  }

  /** Prints how checks end. What fails in a check and once more behind it has failed for the first reason. */
  private static final class Report extends RunListener {
    private final Map<Description, String> ended = new HashMap<>();

    private static String line(String how, Description check, Throwable why) {
      String name = check.getTestClass().getName().replaceFirst("^Suites\\$", "") + "." + (check.isTest() ? check.getMethodName() : "class");
      String line = "check\t" + how + "\t" + name;
      return why == null ? line : line + "\t" + why.toString().replaceAll("\\s+", " ");
    }

    @Override public void testStarted(Description check) {
      System.out.println(line("begun", check, null));
    }

    @Override public void testFailure(Failure f) {
      System.err.println(line("failed", f.getDescription(), f.getException()));
      f.getException().printStackTrace();
      note("failed", f);
    }

    @Override public void testAssumptionFailure(Failure f) {
      note("skipped", f);
    }

    @Override public void testIgnored(Description check) {
      System.out.println(line("skipped", check, null));
    }

    @Override public void testFinished(Description check) {
      String line = ended.remove(check);
      System.out.println(line == null ? line("passed", check, null) : line);
    }

    private void note(String how, Failure f) {
      String line = line(how, f.getDescription(), f.getException());
      if (f.getDescription().isTest()) {
        ended.putIfAbsent(f.getDescription(), line);
      } else {
        System.out.println(line); // of a whole class, whose end is not reported
      }
    }
  }

  /** Binds the contract tests to the server. */
  private static final class Bound extends AbstractBondedFSContract {
    Bound(Configuration c) {
      super(c);
      c.addResource(settings());
    }

    @Override public String getScheme() {
      return System.getProperty("uri").split(":")[0];
    }
  }

  public static class Append extends AbstractContractAppendTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class BulkDelete extends AbstractContractBulkDeleteTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class Concat extends AbstractContractConcatTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class ContentSummary extends AbstractContractContentSummaryTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class CopyFromLocal extends AbstractContractCopyFromLocalTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class Create extends AbstractContractCreateTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class Delete extends AbstractContractDeleteTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class GetFileStatus extends AbstractContractGetFileStatusTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class LeaseRecovery extends AbstractContractLeaseRecoveryTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class Mkdir extends AbstractContractMkdirTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  /** How its uploader behaves is Hadoop's client's choice. */
  public static class MultipartUploader extends AbstractContractMultipartUploaderTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
    @Override protected int partSizeInBytes() { return 1 << 10; }
    @Override protected boolean finalizeConsumesUploadIdImmediately() { return true; }
    @Override protected boolean supportsConcurrentUploadsToSamePath() { return true; }
  }

  public static class Open extends AbstractContractOpenTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class PathHandle extends AbstractContractPathHandleTest {
    public PathHandle(String name, HandleOpt[] opts, boolean serialized) { super(name, opts, serialized); }
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class Rename extends AbstractContractRenameTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  /** Removes all there is. */
  public static class RootDirectory extends AbstractContractRootDirectoryTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class SafeMode extends AbstractContractSafeModeTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class Seek extends AbstractContractSeekTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class SetTimes extends AbstractContractSetTimesTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class Unbuffer extends AbstractContractUnbufferTest {
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  public static class VectoredRead extends AbstractContractVectoredReadTest {
    public VectoredRead(String buffer) { super(buffer); }
    @Override protected AbstractFSContract createContract(Configuration c) { return new Bound(c); }
  }

  /** The older tests of all file systems. Their client has the umask that they expect from its beginning. */
  public static class Base extends FileSystemContractBaseTest {
    @Before public void connect() throws IOException {
      Configuration c = settings();
      c.set(CommonConfigurationKeys.FS_PERMISSIONS_UMASK_KEY, TEST_UMASK);
      fs = FileSystem.newInstance(c);
    }

    @Override protected String getDefaultWorkingDirectory() {
      return fs.getHomeDirectory().toUri().getPath();
    }
  }
}
