/** The cassettes have no answer to a request. There is no retry and no fallback to another model, so that a test fails. */
export class AnswerNotRecorded extends Error {
  override readonly name = "AnswerNotRecorded";
}
