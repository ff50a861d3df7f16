/** A request that the cassettes have no answer to. It is not tried again, and no other model stands in: a test is to fail then. */
export class AnswerNotRecorded extends Error {
  override readonly name = "AnswerNotRecorded";
}
