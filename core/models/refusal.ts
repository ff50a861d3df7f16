/** The model refused to answer. */
export class ModelRefusal extends Error {
  override readonly name = "ModelRefusal";
  readonly refusal: string;

  constructor(refusal: string) {
    super(refusal);
    this.refusal = refusal;
  }
}
