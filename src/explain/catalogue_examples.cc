// What the worked examples say.

#include "explain/catalogue.h"

namespace qkv {
namespace {

constexpr Message kMessages[] = {
    {"example.dot.title", "The dot product, where attention begins",
     "Tích vô hướng, nơi cơ chế chú ý bắt đầu", "내적, 어텐션의 출발점", "点积，注意力的起点"},
    {"example.dot.intro",
     "Attention has four steps: dot product, scaling, softmax, weighted sum of the values. This is "
     "the first one: multiply entry by entry and add up.",
     "Cơ chế chú ý có bốn bước: tích vô hướng, chia tỉ lệ, softmax, tổng có trọng số của các "
     "value. Đây là bước đầu tiên: nhân từng phần tử rồi cộng lại.",
     "어텐션은 네 단계이다: 내적, 스케일링, 소프트맥스, 값의 가중합. 이것은 첫 단계로, 원소끼리 "
     "곱해서 모두 더한다.",
     "注意力有四步：点积、缩放、softmax、对值加权求和。这是第一步：逐元素相乘再相加。"},
    {"example.dot.scores.title", "Scores", "Điểm số", "점수", "分数"},
    {"example.dot.scores.meaning", "One number for each key: how well it fits the query.",
     "Mỗi key một con số: nó khớp với query đến mức nào.",
     "키마다 하나의 수: 쿼리에 얼마나 잘 맞는가.", "每个键一个数：它与查询有多匹配。"},
    {"example.dot.direction",
     "The second key points the same way as the query (it is the query) and scores {}; the first "
     "one scores only {}. High means relevant, low means not.",
     "Key thứ hai cùng hướng với query (chính là query) và được {} điểm; key thứ nhất chỉ được {}. "
     "Điểm cao là liên quan, điểm thấp là không.",
     "두 번째 키는 쿼리와 같은 방향(쿼리 자신)이라 점수가 {}이고, 첫 번째 키는 {}뿐이다. 점수가 "
     "높으면 관련이 있고 낮으면 없다.",
     "第二个键与查询方向相同（就是查询本身），得分 {}；第一个键只得 "
     "{}。分数高表示相关，低表示不相关。"},

    {"example.pixels.title", "Q, K and V of four pixels", "Q, K và V của bốn điểm ảnh",
     "픽셀 네 개의 Q, K, V", "四个像素的 Q、K、V"},
    {"example.pixels.intro",
     "The example of a study note: an image of 2×2 pixels with 4 channels, one head, key_dim = 2 "
     "and head_dim = 2, small enough to check every number by hand.",
     "Ví dụ trong một bài ghi chú học tập: ảnh 2×2 điểm ảnh với 4 kênh, một đầu, key_dim = 2 và "
     "head_dim = 2, đủ nhỏ để kiểm tra mọi con số bằng tay.",
     "한 학습 노트의 예제이다: 채널 4개, 2×2 픽셀의 이미지, 헤드 하나, key_dim = 2, head_dim = "
     "2로, 모든 수를 손으로 확인할 수 있을 만큼 작다.",
     "一篇学习笔记中的例子：一幅 2×2 像素、4 通道的图像，一个头，key_dim = 2，head_dim = "
     "2，小到可以手工核对每个数字。"},
    {"example.pixels.input.title", "Image", "Ảnh", "이미지", "图像"},
    {"example.pixels.input.meaning",
     "Channel by channel, as a convolution sees it. Each pixel has four numbers and no role yet.",
     "Từng kênh một, như phép tích chập nhìn thấy. Mỗi điểm ảnh có bốn con số và chưa có vai trò "
     "nào.",
     "합성곱이 보는 대로 채널별로. 픽셀마다 수가 네 개 있고 아직 역할은 없다.",
     "逐个通道，正如卷积所见。每个像素有四个数，还没有角色。"},
    {"example.pixels.output.title", "Output", "Đầu ra", "출력", "输出"},
    {"example.pixels.output.meaning",
     "What each pixel has gathered from all pixels: the heads' numbers seen as an image of "
     "head_dim channels again. A real detector adds a positional encoding and a projection here.",
     "Những gì mỗi điểm ảnh thu được từ mọi điểm ảnh: các số của từng đầu lại được xem là ảnh có "
     "head_dim kênh. Bộ phát hiện thật còn cộng mã hoá vị trí và một phép chiếu ở đây.",
     "각 픽셀이 모든 픽셀에서 모은 것: 헤드의 수를 다시 head_dim 채널의 이미지로 본다. 실제 "
     "검출기는 여기에 위치 인코딩과 투영을 더한다.",
     "每个像素从所有像素汇集到的内容：把各头的数字重新看作 head_dim "
     "个通道的图像。真正的检测器在这里还会加上位置编码和投影。"},
    {"example.pixels.w_query.title", "Query weights", "Trọng số query", "쿼리 가중치", "查询权重"},
    {"example.pixels.w_query.meaning", "Picks channels c0 and c2 of each pixel.",
     "Chọn kênh c0 và c2 của mỗi điểm ảnh.", "각 픽셀에서 채널 c0과 c2를 고른다.",
     "从每个像素中选取通道 c0 和 c2。"},
    {"example.pixels.w_key.title", "Key weights", "Trọng số key", "키 가중치", "键权重"},
    {"example.pixels.w_key.meaning",
     "Picks c1 and c0, in this order: swapped on purpose, so that Q and K differ.",
     "Chọn c1 rồi c0: cố ý đảo thứ tự để Q và K khác nhau.",
     "c1, c0 순서로 고른다: Q와 K가 다르도록 일부러 바꿨다.",
     "依次选取 c1 和 c0：故意交换，使 Q 与 K 不同。"},
    {"example.pixels.w_value.title", "Value weights", "Trọng số value", "값 가중치", "值权重"},
    {"example.pixels.w_value.meaning", "Picks c2 and c1.", "Chọn c2 và c1.", "c2와 c1을 고른다.",
     "选取 c2 和 c1。"},
    {"example.pixels.fused",
     "In code this is one 1×1 convolution with heads·(2·key_dim + head_dim) = 6 output channels: "
     "its result is {}. With head_dim = dim / heads that is dim + 2·heads·key_dim.",
     "Trong mã đây là một phép tích chập 1×1 với heads·(2·key_dim + head_dim) = 6 kênh ra: kết quả "
     "có hình dạng {}. Khi head_dim = dim / heads thì đó là dim + 2·heads·key_dim.",
     "코드에서는 출력 채널이 heads·(2·key_dim + head_dim) = 6개인 1×1 합성곱 하나이고, 결과는 "
     "{}이다. head_dim = dim / heads이면 dim + 2·heads·key_dim이 된다.",
     "在代码中这是一个有 heads·(2·key_dim + head_dim) = 6 个输出通道的 1×1 卷积，结果形状为 {}。当 "
     "head_dim = dim / heads 时即 dim + 2·heads·key_dim。"},
    {"example.pixels.order",
     "view(B, heads, 2·key_dim + head_dim, N).split(…) gives Q, K and V of shape {} each: channels "
     "first, pixels last. They are printed here with a row a pixel.",
     "view(B, heads, 2·key_dim + head_dim, N).split(…) cho Q, K, V có hình dạng {}: kênh trước, "
     "điểm ảnh sau. Ở đây chúng được in mỗi điểm ảnh một hàng.",
     "view(B, heads, 2·key_dim + head_dim, N).split(…)은 모양이 {}인 Q, K, V를 준다: 채널이 앞, "
     "픽셀이 뒤이다. 여기서는 픽셀마다 한 행으로 출력한다.",
     "view(B, heads, 2·key_dim + head_dim, N).split(…) 得到形状为 {} 的 "
     "Q、K、V：通道在前，像素在后。这里按每个像素一行打印。"},
    {"example.pixels.note_key",
     "The note writes other factors for K's first entry; the true ones are {}. The result, 0, is "
     "the same.",
     "Bài ghi chú viết các thừa số khác cho phần tử đầu của K; thừa số đúng là {}. Kết quả vẫn là "
     "0.",
     "노트에는 K의 첫 원소의 인수가 다르게 적혀 있다. 올바른 것은 {}이고, 결과는 똑같이 0이다.",
     "笔记中 K 第一个元素的因子写错了；正确的是 {}。结果同样是 0。"},

    {"example.channels.title", "Why 4 channels become 8", "Vì sao 4 kênh trở thành 8",
     "채널 4개가 8개가 되는 까닭", "为什么 4 个通道变成 8 个"},
    {"example.channels.intro",
     "Input (1, 4, 3, 3), dim = 4, heads = 2, attn_ratio = 0.5. The weights come from a seeded "
     "generator.",
     "Đầu vào (1, 4, 3, 3), dim = 4, heads = 2, attn_ratio = 0.5. Trọng số lấy từ bộ sinh số có "
     "hạt giống.",
     "입력 (1, 4, 3, 3), dim = 4, heads = 2, attn_ratio = 0.5. 가중치는 시드가 정해진 생성기에서 "
     "나온다.",
     "输入 (1, 4, 3, 3)，dim = 4，heads = 2，attn_ratio = 0.5。权重来自带种子的生成器。"},
    {"example.channels.count", "{} channels = {} of Q + {} of K + {} of V.",
     "{} kênh = {} của Q + {} của K + {} của V.", "채널 {}개 = Q {}개 + K {}개 + V {}개.",
     "{} 个通道 = Q {} 个 + K {} 个 + V {} 个。"},
    {"example.channels.why",
     "Q and K are narrower than V: they only decide the weights, while V carries the content. "
     "attn_ratio < 1 saves computation.",
     "Q và K hẹp hơn V: chúng chỉ quyết định trọng số, còn V mang nội dung. attn_ratio < 1 tiết "
     "kiệm tính toán.",
     "Q와 K는 V보다 좁다: 가중치만 정하고 내용은 V가 나르기 때문이다. attn_ratio < 1이면 계산이 "
     "줄어든다.",
     "Q 和 K 比 V 窄：它们只决定权重，内容由 V 承载。attn_ratio < 1 可以节省计算。"},

    {"example.journey.title", "Simplest self-attention: \"Your journey starts\"",
     "Tự chú ý đơn giản nhất: \"Your journey starts\"",
     "가장 단순한 셀프 어텐션: \"Your journey starts\"", "最简单的自注意力：“Your journey starts”"},
    {"example.journey.intro",
     "The example of a study note: three tokens, no weights and no scaling: scores = X·Xᵀ, weights "
     "= softmax(scores), Z = weights·X.",
     "Ví dụ trong một bài ghi chú học tập: ba token, không trọng số học và không chia tỉ lệ: điểm "
     "số = X·Xᵀ, trọng số = softmax(điểm số), Z = trọng số·X.",
     "한 학습 노트의 예제이다: 토큰 세 개, 가중치 행렬도 스케일링도 없다. 점수 = X·Xᵀ, 가중치 = "
     "softmax(점수), Z = 가중치·X.",
     "一篇学习笔记中的例子：三个词元，没有可学习权重，也不缩放：分数 = X·Xᵀ，权重 = "
     "softmax(分数)，Z = 权重·X。"},
    {"example.journey.first_row", "The note prints Z's first row as {}; true arithmetic gives {}.",
     "Bài ghi chú in hàng đầu của Z là {}; tính đúng cho {}.",
     "노트에는 Z의 첫 행이 {}로 적혀 있지만, 올바른 계산은 {}이다.",
     "笔记把 Z 的第一行印成 {}；正确的计算结果是 {}。"},
    {"example.journey.cut_off",
     "It cuts the other rows off rather than rounding them: {} where rounding gives {}.",
     "Các hàng khác bị cắt bớt chữ số thay vì làm tròn: {} trong khi làm tròn cho {}.",
     "나머지 행은 반올림하지 않고 잘라 냈다: {}로 적혀 있지만 반올림하면 {}이다.",
     "其余各行是截断而不是四舍五入：印的是 {}，四舍五入应为 {}。"},

    {"example.causal.title", "Causal attention, as in GPT", "Chú ý nhân quả, như trong GPT",
     "GPT와 같은 인과적 어텐션", "因果注意力，如 GPT"},
    {"example.causal.intro",
     "The same three tokens, scaled by 1/√3, with a mask: a token sees only itself and earlier "
     "ones.",
     "Vẫn ba token ấy, chia cho √3, có mặt nạ: một token chỉ thấy chính nó và các token trước.",
     "같은 세 토큰을 1/√3로 스케일하고 마스크를 씌운다: 토큰은 자신과 앞의 토큰만 본다.",
     "同样三个词元，按 1/√3 缩放，并加掩码：一个词元只看到自己和之前的词元。"},
    {"example.causal.first_token", "The first token sees only itself: its weight is exactly 1.",
     "Token đầu tiên chỉ thấy chính nó: trọng số đúng bằng 1.",
     "첫 토큰은 자신만 본다: 가중치는 정확히 1이다.", "第一个词元只看到自己：权重恰好为 1。"},
    {"example.causal.generation",
     "A model generates token by token: what comes later is not there yet, so training hides it.",
     "Mô hình sinh từng token một: những gì đến sau chưa tồn tại, nên khi huấn luyện chúng bị che.",
     "모델은 토큰을 하나씩 생성한다. 뒤에 올 것은 아직 없으므로 학습할 때도 가린다.",
     "模型逐个词元生成：后面的还不存在，所以训练时要遮住它们。"},

    {"example.heads.title", "Several heads", "Nhiều đầu chú ý", "여러 개의 헤드", "多个头"},
    {"example.heads.intro",
     "MHA(Q, K, V) = Concat(head_1, …, head_n)·Wo with 2 heads of width 2. The numbers come from a "
     "seeded generator.",
     "MHA(Q, K, V) = Concat(head_1, …, head_n)·Wo với 2 đầu có độ rộng 2. Các số lấy từ bộ sinh số "
     "có hạt giống.",
     "폭이 2인 헤드 2개로 MHA(Q, K, V) = Concat(head_1, …, head_n)·Wo. 수는 시드가 정해진 "
     "생성기에서 나온다.",
     "MHA(Q, K, V) = Concat(head_1, …, head_n)·Wo，2 个宽度为 2 的头。数字来自带种子的生成器。"},
    {"example.heads.differ",
     "The two heads weigh the same tokens differently: each learns relations of its own, such as "
     "syntax, meaning or position. It is the core of the Transformer and of GPT.",
     "Hai đầu đặt trọng số khác nhau lên cùng các token: mỗi đầu học những quan hệ riêng, như cú "
     "pháp, ngữ nghĩa hay vị trí. Đây là cốt lõi của Transformer và GPT.",
     "두 헤드는 같은 토큰에 다른 가중치를 준다: 각자 문법, 의미, 위치와 같은 자신만의 관계를 "
     "배운다. 이것이 트랜스포머와 GPT의 핵심이다.",
     "两个头对同样的词元给出不同的权重：各自学习自己的关系，如语法、语义或位置。这是 Transformer "
     "和 GPT 的核心。"},

    {"example.scaling.title", "Why scores are divided by √d", "Vì sao chia điểm số cho √d",
     "점수를 √d로 나누는 까닭", "为什么分数要除以 √d"},
    {"example.scaling.intro",
     "One note says that without scaling gradients explode, another that they vanish. Measured on "
     "random queries and keys:",
     "Một ghi chú nói rằng nếu không chia tỉ lệ thì gradient bùng nổ, ghi chú khác nói nó triệt "
     "tiêu. Đo trên query và key ngẫu nhiên:",
     "한 노트는 스케일링이 없으면 기울기가 폭발한다고 하고, 다른 노트는 소실된다고 한다. 무작위 "
     "쿼리와 키로 재어 보면:",
     "一篇笔记说不缩放梯度会爆炸，另一篇说会消失。用随机的查询和键来测量："},
    {"example.scaling.scores",
     "The scores grow as √d: at d = 1024 their size is {}; divided by √d it is {}.",
     "Điểm số tăng theo √d: tại d = 1024 độ lớn là {}; chia cho √d thì là {}.",
     "점수는 √d에 비례해 커진다: d = 1024에서 크기가 {}이고, √d로 나누면 {}이다.",
     "分数按 √d 增长：d = 1024 时大小为 {}；除以 √d 后为 {}。"},
    {"example.scaling.softmax",
     "So softmax saturates: the largest weight of a row is {} on average, against {} with scaling.",
     "Vì thế softmax bão hoà: trọng số lớn nhất của một hàng trung bình là {}, so với {} khi có "
     "chia tỉ lệ.",
     "그래서 소프트맥스가 포화된다: 한 행의 가장 큰 가중치가 평균 {}이고, 스케일하면 {}이다.",
     "于是 softmax 饱和：一行中最大的权重平均为 {}，缩放后为 {}。"},
    {"example.scaling.settled",
     "And its gradient vanishes: the reaction of the weights to the scores falls from {} at d = 1 "
     "to {} at d = 1024, while with scaling it stays at {}. What explodes are the scores; what "
     "vanishes is the gradient. Both notes describe the same trouble.",
     "Và gradient của nó triệt tiêu: phản ứng của trọng số với điểm số giảm từ {} tại d = 1 xuống "
     "{} tại d = 1024, còn khi chia tỉ lệ thì giữ ở {}. Cái bùng nổ là điểm số; cái triệt tiêu là "
     "gradient. Cả hai ghi chú mô tả cùng một vấn đề.",
     "그리고 기울기가 소실된다: 점수에 대한 가중치의 반응이 d = 1에서 {}, d = 1024에서 {}로 "
     "떨어지지만, 스케일하면 {}에 머문다. 폭발하는 것은 점수이고 소실되는 것은 기울기이다. 두 "
     "노트는 같은 문제를 말한다.",
     "而它的梯度消失：权重对分数的反应从 d = 1 时的 {} 降到 d = 1024 时的 {}，缩放后则保持在 "
     "{}。爆炸的是分数，消失的是梯度。两篇笔记说的是同一个问题。"},

    {"example.vit.title", "How a ViT makes Q, K and V", "ViT tạo ra Q, K và V như thế nào",
     "ViT가 Q, K, V를 만드는 법", "ViT 如何得到 Q、K、V"},
    {"example.vit.intro",
     "x is [1, 197, 768]: a CLS token and 14×14 patches; 12 heads of 64. In concept three products "
     "(Q = Wq·x, K = Wk·x, V = Wv·x), in code one Linear(768, 2304). The weights come from a "
     "seeded generator.",
     "x là [1, 197, 768]: một token CLS và 14×14 mảnh ảnh; 12 đầu, mỗi đầu 64. Về khái niệm là ba "
     "phép nhân (Q = Wq·x, K = Wk·x, V = Wv·x), trong mã là một Linear(768, 2304). Trọng số lấy từ "
     "bộ sinh số có hạt giống.",
     "x는 [1, 197, 768]: CLS 토큰 하나와 14×14 패치, 64폭의 헤드 12개. 개념으로는 세 번의 곱(Q = "
     "Wq·x, K = Wk·x, V = Wv·x)이고 코드에서는 Linear(768, 2304) 하나이다. 가중치는 시드가 정해진 "
     "생성기에서 나온다.",
     "x 为 [1, 197, 768]：一个 CLS 词元和 14×14 个图像块；12 个宽 64 的头。概念上是三次乘法（Q = "
     "Wq·x，K = Wk·x，V = Wv·x），代码中是一个 Linear(768, 2304)。权重来自带种子的生成器。"},
    {"example.vit.one_product",
     "A token's y1 … y{} is [Q({}) | K | V]: one product instead of three.",
     "y1 … y{} của một token là [Q({}) | K | V]: một phép nhân thay vì ba.",
     "한 토큰의 y1 … y{}는 [Q({}) | K | V]이다: 곱셈 세 번 대신 한 번.",
     "一个词元的 y1 … y{} 就是 [Q({}) | K | V]：一次乘法代替三次。"},
    {"example.vit.drawers",
     "reshape(B, N, 3, heads, head_dim) moves no number, it only sorts them into three drawers; "
     "permute(2, 0, 3, 1, 4) brings Q, K and V to the front. One token, three roles: what it asks, "
     "what it is compared by, what it passes on.",
     "reshape(B, N, 3, heads, head_dim) không di chuyển số nào, chỉ xếp chúng vào ba ngăn; "
     "permute(2, 0, 3, 1, 4) đưa Q, K, V lên trước. Một token, ba vai trò: nó hỏi gì, được so sánh "
     "bằng gì, truyền đi điều gì.",
     "reshape(B, N, 3, heads, head_dim)은 수를 옮기지 않고 세 서랍으로 나눌 뿐이며, permute(2, 0, "
     "3, 1, 4)가 Q, K, V를 앞으로 가져온다. 한 토큰, 세 역할: 무엇을 묻고, 무엇으로 비교되고, "
     "무엇을 전달하는가.",
     "reshape(B, N, 3, heads, head_dim) 不移动任何数字，只是分进三个抽屉；permute(2, 0, 3, 1, 4) "
     "把 Q、K、V 移到最前。一个词元，三个角色：问什么、用什么来比较、传递什么。"},

    {"example.transformer.title", "Multi-head attention with every shape",
     "Chú ý đa đầu với mọi hình dạng", "모든 모양을 보는 멀티 헤드 어텐션", "多头注意力的全部形状"},
    {"example.transformer.intro",
     "MultiHead(Q, K, V) = Concat(head_1, …, head_h)·W^O with head_i = Attention(Q·W_i^Q, K·W_i^K, "
     "V·W_i^V). Here Q, K and V come from the same X; they may also come from different sequences. "
     "The paper's sizes: d_model = 512, h = 8, d_k = d_v = 64; a batch of B = 32 sequences of T = "
     "20 tokens. X and the weights come from a seeded generator.",
     "MultiHead(Q, K, V) = Concat(head_1, …, head_h)·W^O với head_i = Attention(Q·W_i^Q, K·W_i^K, "
     "V·W_i^V). Ở đây Q, K, V đến từ cùng một X; chúng cũng có thể đến từ các dãy khác nhau. Kích "
     "thước trong bài báo gốc: d_model = 512, h = 8, d_k = d_v = 64; lô B = 32 dãy, mỗi dãy T = 20 "
     "token. X và trọng số lấy từ bộ sinh số có hạt giống.",
     "MultiHead(Q, K, V) = Concat(head_1, …, head_h)·W^O, 여기서 head_i = Attention(Q·W_i^Q, "
     "K·W_i^K, V·W_i^V)이다. 이 예제에서는 Q, K, V가 같은 X에서 나오지만 서로 다른 시퀀스에서 올 "
     "수도 있다. 논문의 크기: d_model = 512, h = 8, d_k = d_v = 64, 길이 T = 20인 시퀀스 B = "
     "32개의 배치. X와 가중치는 시드가 정해진 생성기에서 나온다.",
     "MultiHead(Q, K, V) = Concat(head_1, …, head_h)·W^O，其中 head_i = Attention(Q·W_i^Q, "
     "K·W_i^K, V·W_i^V)。这里 Q、K、V 来自同一个 X，也可以来自不同的序列。论文中的尺寸：d_model = "
     "512，h = 8，d_k = d_v = 64；一批 B = 32 个序列，每个 T = 20 个词元。X "
     "和权重来自带种子的生成器。"},
    {"example.transformer.split",
     "X·W^Q is [B=32, T=20, d_model=512]. Its 512 columns are 8 heads of 64: reshape to [B, T, h, "
     "d_k], then transpose to [B, h, T, d_k]. Head i reads columns 64·i to 64·i + 63 of W^Q, which "
     "are W_i^Q, [512, 64]. K and V likewise.",
     "X·W^Q có hình dạng [B=32, T=20, d_model=512]. 512 cột của nó là 8 đầu, mỗi đầu 64: đổi hình "
     "thành [B, T, h, d_k], rồi chuyển vị thành [B, h, T, d_k]. Đầu i dùng các cột 64·i đến 64·i + "
     "63 của W^Q, tức là W_i^Q, [512, 64]. K và V cũng vậy.",
     "X·W^Q는 [B=32, T=20, d_model=512]이다. 그 512개 열은 폭이 64인 헤드 8개로, [B, T, h, d_k]로 "
     "모양을 바꾸고 [B, h, T, d_k]로 전치한다. 헤드 i는 W^Q의 열 64·i부터 64·i + 63까지, 즉 W_i^Q "
     "[512, 64]를 쓴다. K와 V도 같다.",
     "X·W^Q 的形状是 [B=32, T=20, d_model=512]。它的 512 列就是 8 个宽 64 的头：先重排为 [B, T, h, "
     "d_k]，再转置为 [B, h, T, d_k]。头 i 使用 W^Q 的第 64·i 到 64·i + 63 列，即 W_i^Q，[512, "
     "64]。K 和 V 同理。"},
    {"example.transformer.rows",
     "Each of the B·h matrices of T×T has rows that add up to 1. Heads attend in several subspaces "
     "at once and catch finer relations.",
     "Mỗi ma trận T×T trong B·h ma trận có các hàng với tổng bằng 1. Các đầu chú ý trong nhiều "
     "không gian con cùng lúc và nắm bắt quan hệ tinh tế hơn.",
     "B·h개의 T×T 행렬마다 각 행의 합은 1이다. 헤드들은 여러 부분 공간에서 동시에 어텐션하여 더 "
     "섬세한 관계를 포착한다.",
     "B·h 个 T×T 矩阵的每一行之和都是 1。各头同时在多个子空间中计算注意力，捕捉更细的关系。"},
};

}  // namespace

std::span<const Message> example_messages() noexcept { return kMessages; }

}  // namespace qkv
