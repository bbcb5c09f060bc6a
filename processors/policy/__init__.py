"""Policy room: decides what may become a memory. The hard rules judge, whatever a prompt or a model said.

The policy in words (SPEC W7, W8):

1. **Consent.** No without consent; a wish to forget needs none.
2. **Place and proof.** The namespace belongs to the owner; a model's claim quotes a turn, and the quote stands in it.
3. **Secrets** (passwords, keys, tokens, one-time codes) are refused. If one only happens to stand in a sentence that is
   worth keeping without it, `[secret]` takes its place.
4. **Threats.** Text that overrides rules, widens privileges, changes the assistant's identity, asks for what it was
   told, hides things from the user, carries data out, plants links or is disguised goes into quarantine, whoever said
   it. What a tool or a document says *to the assistant* does too. Wishes about answers ("always answer in Chinese") are welcome.
5. **Source.** The user speaks for himself, a tool for what it did. An assistant's, a third person's or a document's
   words become the user's only when he confirms them; from outside nothing becomes a rule. The root cause of a failure
   is an episode.
6. **Sensitive profile** (health, religion, politics, sexuality, ethnicity, marital status, gender) is never inferred:
   only the person's own first-person words count.
7. **Confidence** below the floor is refused, unless the person gave an explicit order.
8. **Worth.** A mood is not kept; a choice of the moment is kept for a day.
9. **People decide** about safety, permission, compliance and payment changes, and about shared scopes.
10. **Masking.** Identity, card and account numbers become keyed hashes, telephone numbers and mail addresses keep their
    ends, chosen fields are reduced (company → industry) – in value, text and evidence alike – and sensitivity rises.

Every verdict carries the policy version: a digest of the rule files, the settings and the code version.
"""

from processors.policy.constraints import Constraint, OneOpenPerSubject, first_violation
from processors.policy.gate import CODE_VERSION, PolicyGate
from processors.policy.masking import Masked
from processors.policy.spans import PiiKind
from processors.policy.verdict import DEFAULT_MASKS, Decision, PolicySettings, Verdict

__all__ = [
    "CODE_VERSION",
    "DEFAULT_MASKS",
    "Constraint",
    "Decision",
    "Masked",
    "OneOpenPerSubject",
    "PiiKind",
    "PolicyGate",
    "PolicySettings",
    "Verdict",
    "first_violation",
]
